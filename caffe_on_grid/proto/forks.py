"""Fields that well-known forks of Caffe added: so that an error can say whose they are."""

from __future__ import annotations

SSD = "SSD Caffe"
INTEL = "Intel Caffe"
NVIDIA = "NVCaffe"
RCNN = "the Caffe of Faster R-CNN"

FORKS: dict[str, str] = {
    **dict.fromkeys(
        (
            "annotated_data_param",
            "detection_evaluate_param",
            "detection_output_param",
            "multibox_loss_param",
            "norm_param",
            "permute_param",
            "prior_box_param",
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
    **dict.fromkeys(("roi_pooling_param", "smooth_l1_loss_param"), RCNN),
    **dict.fromkeys(("warmup_iter", "warmup_start_lr", "local_lr_auto", "bn_stats_batch_size"), INTEL),
    **dict.fromkeys(
        ("larc", "larc_policy", "larc_eta", "rampup_lr", "rampup_interval", "min_lr", "global_grad_scale"),
        NVIDIA,
    ),
    **dict.fromkeys(("psroi_pooling_param", "box_annotator_ohem_param"), "the Caffe of R-FCN"),
    "bn_param": "the Caffe of PSPNet and SegNet",
    "interp_param": "the Caffe of DeepLab and PSPNet",
    "seg_refine_param": "the Caffe of DeepLab",
    "dense_image_data_param": "the Caffe of SegNet",
    "upsample_param": "the Caffe of SegNet",
    "reorg_param": "Caffe with YOLO",
    "region_loss_param": "Caffe with YOLO",
    "shuffle_channel_param": "the Caffe of ShuffleNet",
    "center_loss_param": "caffe-face",
    "margin_inner_product_param": "the Caffe of SphereFace",
}


def owner(field: str) -> str:
    """` (a field of …, which Caffe 1.0 lacks)`, or nothing for a name that no known fork has."""
    return f" (a field of {FORKS[field]}, which Caffe 1.0 lacks)" if field in FORKS else ""
