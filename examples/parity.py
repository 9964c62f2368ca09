"""Give timm, transformers and torchvision random weights, import them, and compare the outputs.

python examples/parity.py [PATTERN]
"""

from fnmatch import fnmatch

import timm
import torch
import torchvision
import transformers
import tyro

import vitreous


def perturbed(model: torch.nn.Module) -> torch.nn.Module:
    """Noise on every parameter: no zero bias and no zero token may hide an error."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    return model.eval()


REFERENCES = {
    ("timm", "vit_base_patch16_224"): lambda: timm.create_model("vit_base_patch16_224"),
    ("timm", "vit_small_r26_s32_224"): lambda: timm.create_model("vit_small_r26_s32_224"),
    ("huggingface", "google/vit-base-patch16-224"): lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(num_labels=1000)
    ),
    ("torchvision", "vit_b_16"): torchvision.models.vit_b_16,
    ("torchvision", "resnet50"): torchvision.models.resnet50,
}


def main(names: tyro.conf.Positional[str] = "*") -> None:
    """Args:
    names: Compare only the models whose names match this pattern.
    """
    torch.manual_seed(0)
    images = torch.randn(2, 3, 224, 224)
    for (library, name), build in REFERENCES.items():
        if not fnmatch(name, names):
            continue
        theirs = perturbed(build())
        ours = vitreous.create(name).eval()
        vitreous.import_weights(ours, theirs.state_dict(), format=library)
        with torch.no_grad():
            wanted, got = theirs(images), ours(images)
        wanted = getattr(wanted, "logits", wanted)
        error = ((got - wanted).norm() / wanted.norm()).item()
        print(f"{name:<28} {library:<12} relative error of the outputs {error:.1e}")
        assert error < 1e-5


if __name__ == "__main__":
    tyro.cli(main)
