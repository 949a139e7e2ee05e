"""A net and its model in other frameworks' form: ONNX, and a PyTorch state_dict."""
