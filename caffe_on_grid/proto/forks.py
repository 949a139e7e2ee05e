"""Fields and layer types that well-known forks of Caffe added: so that an error can say whose they are."""

from __future__ import annotations

SSD = "SSD Caffe"
INTEL = "Intel Caffe"
NVIDIA = "NVCaffe"

FORKS: dict[str, str] = {
    **dict.fromkeys(
        (
            "annotated_data_param",
            "detection_evaluate_param",
            "detection_output_param",
            "multibox_loss_param",
            "video_data_param",
            "resize_param",
            "emit_constraint",
            "distort_param",
            "expand_param",
            "eval_type",
            "ap_version",
            "plateau_winsize",
        ),
        SSD,
    ),
    **dict.fromkeys(
        ("default_forward_type", "default_backward_type", "forward_type", "backward_type", "scale_bias"), NVIDIA
    ),
    **dict.fromkeys(("warmup_iter", "warmup_start_lr", "local_lr_auto", "bn_stats_batch_size"), INTEL),
    **dict.fromkeys(
        ("larc", "larc_policy", "larc_eta", "rampup_lr", "rampup_interval", "min_lr", "global_grad_scale"),
        NVIDIA,
    ),
    **dict.fromkeys(("psroi_pooling_param", "box_annotator_ohem_param"), "the Caffe of R-FCN"),
    "bn_param": "the Caffe of PSPNet and SegNet",
    "seg_refine_param": "the Caffe of DeepLab",
    "dense_image_data_param": "the Caffe of SegNet",
    "region_loss_param": "Caffe with YOLO",
    "center_loss_param": "caffe-face",
    "margin_inner_product_param": "the Caffe of SphereFace",
}


def owner(field: str) -> str:
    """` (a field of …, which Caffe 1.0 lacks)`, or nothing for a name that no known fork has."""
    return f" (a field of {FORKS[field]}, which Caffe 1.0 lacks)" if field in FORKS else ""


LAYERS: dict[str, str] = {
    **dict.fromkeys(("AnnotatedData", "DetectionEvaluate", "DetectionOutput", "MultiBoxLoss", "VideoData"), SSD),
    **dict.fromkeys(
        ("PSROIPooling", "BoxAnnotatorOHEM", "SmoothL1LossOHEM", "SoftmaxWithLossOHEM"), "the Caffe of R-FCN"
    ),
    **dict.fromkeys(("RegionLoss", "Yolov3", "YoloDetectionOutput", "BoxData"), "Caffe with YOLO"),
    **dict.fromkeys(("DenseImageData", "SegAccuracy"), "the Caffe of SegNet"),
    **dict.fromkeys(("ImageSegData", "DenseCRF", "DomainTransform", "MatRead", "MatWrite"), "the Caffe of DeepLab"),
    **dict.fromkeys(("MultiAccuracy", "LabelRanking", "DetectNetTransformation"), NVIDIA),
    "BN": "the Caffe of PSPNet and SegNet",
    "CenterLoss": "caffe-face",
    "MarginInnerProduct": "the Caffe of SphereFace",
    "MKLReLU": INTEL,
}
"""Layer types of forks whose shapes are not known here, and whose they are."""


def layer_owner(kind: str) -> str:
    """` (a layer of …, which Caffe 1.0 lacks)`, or nothing for a type that no known fork has."""
    return f" (a layer of {LAYERS[kind]}, which Caffe 1.0 lacks)" if kind in LAYERS else ""
