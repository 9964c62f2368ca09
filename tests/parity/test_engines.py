"""What other engines compute from our graphs: torch.export, ONNX Runtime and OpenVINO."""

import onnxruntime
import torch
from compare import perturb
from torch import nn

import vitreous
from vitreous.engines.graph import openvino_core

TINY = {
    "image_size": 64,
    "classes": 5,
    "backbone": "vit-ti/16",
    "backbone_fields": {"depth": 4, "dim": 48, "mlp_dim": 96, "patch": 8, "windows.side": 2},
    "dim": 32,
    "heads": 4,
    "cross_heads": 4,
    "decoder_depth": 2,
    "mlp_dim": 64,
    "queries": 12,
    "groups": 2,
    "projector_depth": 1,
}
BATCH = torch.export.Dim("batch", min=1, max=64)


class LastLayer(nn.Module):
    """A detector's predictions as a tuple of tensors."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, images):
        found = self.model(images)
        parts = (found.logits, found.boxes, found.masks)
        return tuple(part[-1] for part in parts if part is not None)


def test_rf_detr_runs_elsewhere(tmp_path):
    """Batches of any length, one graph: nothing in it depends on the data but through tensors. With
    masks, which have logits and boxes beside them."""
    model = LastLayer(perturb(vitreous.create("rf-detr", masks=True, **TINY))).eval()
    shapes = {"images": {0: BATCH}}
    images = torch.randn(2, 3, 64, 64)
    exported = torch.export.export(model, (images,), dynamic_shapes=shapes)
    file = tmp_path / "model.onnx"
    torch.onnx.export(
        exported,
        (),
        file,
        dynamo=True,
        input_names=["images"],
        dynamic_shapes=shapes,
        verbose=False,
    )
    runtime = onnxruntime.InferenceSession(file)
    compiled = openvino_core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    for count in (1, 2, 5):
        images = torch.randn(count, 3, 64, 64)
        with torch.inference_mode():
            wanted = model(images)
        elsewhere = {
            "torch.export": exported.module()(images),
            "ONNX Runtime": runtime.run(None, {"images": images.numpy()}),
            "OpenVINO": list(compiled(images.numpy()).values()),
        }
        for engine, found in elsewhere.items():
            for ours, theirs in zip(wanted, found, strict=True):
                error = (ours - torch.as_tensor(theirs)).abs().max() / ours.abs().max()
                assert error < 2e-5, (engine, count)
