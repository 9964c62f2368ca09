"""PaddleClas' own vision transformers, as the reference of the `paddle` weight format.

Run by the Python of an environment with PaddlePaddle (`make test-paddle` does all of it):

    pip install paddlepaddle==3.3.1 requests tqdm
    pip install --no-deps paddleclas==2.6.0
    python paddle_reference.py FOLDER [--full]    # writes the references; --full adds ViT-B/16
    python paddle_reference.py --load FOLDER      # the way back: checks what our exporter wrote

For each model the first form writes `<name>.pdparams` (paddle.save of the state dict),
`<name>.npz` (`images` (b, c, h, w) and `logits` (b, classes) in evaluation; for the distilled
model also `class_logits` and `distillation_logits`, whose mean is `logits`) and `<name>.json`
(`build`: class or factory, `arguments`: what it was given, `settings`: what was built, in the
constructor's own words). The second form wants a `<name>-back.pdparams` for each `<name>.json`
and exits with 1 if one is absent, does not load strictly, or has other tensors or outputs.
"""

import argparse
import functools
import importlib
import importlib.util
import json
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import paddle

TOLERANCE = 1e-5  # of the largest output
NOISE = 0.05  # small enough that LayerNorm's epsilon still shows in the outputs

SMALL = {
    "img_size": 32,
    "patch_size": 8,
    "embed_dim": 48,
    "depth": 3,
    "num_heads": 4,
    "class_num": 10,
}
Models = dict[str, tuple[str, dict[str, Any]]]  # name: (class or factory, its arguments)
MODELS: Models = {
    "vit": ("VisionTransformer", {**SMALL, "qkv_bias": True, "epsilon": 1e-6}),
    # As ViT_small_patch16_224: no qkv bias, the default epsilon, and scaled by the whole width.
    "vit-scaled": ("VisionTransformer", {**SMALL, "mlp_ratio": 3, "qk_scale": 48**-0.5}),
    "deit-distilled": ("DistilledVisionTransformer", {**SMALL, "qkv_bias": True, "epsilon": 1e-6}),
}
FULL: Models = {"ViT_base_patch16_224": ("ViT_base_patch16_224", {})}


@functools.cache
def paddleclas_models() -> types.ModuleType:
    """The DeiT module of PaddleClas, which also holds VisionTransformer.

    `import paddleclas` pulls in OpenCV, faiss, scikit-learn and more. Empty packages with the
    right `__path__` stand in for its parents, so that only the files of the two models are run.
    """
    spec = importlib.util.find_spec("paddleclas")
    if spec is None or spec.origin is None:
        raise SystemExit("paddleclas is not installed: pip install --no-deps paddleclas==2.6.0")
    zoo = "ppcls.arch.backbone.model_zoo"
    for name in ("ppcls", "ppcls.arch", "ppcls.arch.backbone", zoo, "ppcls.utils"):
        package = types.ModuleType(name)
        package.__path__ = [str(Path(spec.origin).parent.joinpath(*name.split(".")))]
        sys.modules[name] = package
    module = importlib.import_module(f"{zoo}.distilled_vision_transformer")
    vit = importlib.import_module(f"{zoo}.vision_transformer")
    for name in vit.__all__:
        setattr(module, name, getattr(vit, name))
    return module


def build(name: str, arguments: dict[str, Any]) -> paddle.nn.Layer:
    model = getattr(paddleclas_models(), name)(**arguments)
    model.eval()
    return model


def settings(model: paddle.nn.Layer) -> dict[str, Any]:
    """What was built, read from the model itself, in the words of PaddleClas' constructor."""
    block = model.blocks[0]
    return {
        "img_size": model.patch_embed.img_size[0],
        "patch_size": model.patch_embed.patch_size[0],
        "in_chans": model.patch_embed.proj.weight.shape[1],
        "class_num": model.class_num,
        "embed_dim": model.embed_dim,
        "depth": len(model.blocks),
        "num_heads": block.attn.num_heads,
        "mlp_ratio": block.mlp.fc1.weight.shape[1] / model.embed_dim,
        "qkv_bias": block.attn.qkv.bias is not None,
        "qk_scale": block.attn.scale,
        "epsilon": model.norm._epsilon,
        "gelu_approximate": block.mlp.act._approximate,
        "distilled": hasattr(model, "head_dist"),
    }


def perturb(model: paddle.nn.Layer, seed: int) -> None:
    """Adds noise to every parameter: zero biases and tokens would hide an error."""
    rng = np.random.default_rng(seed)
    for parameter in model.state_dict().values():
        noise = NOISE * rng.standard_normal(parameter.shape, dtype=np.float32)
        parameter.set_value(parameter.numpy() + noise)


def outputs(model: paddle.nn.Layer, images: np.ndarray) -> dict[str, np.ndarray]:
    with paddle.no_grad():
        x = paddle.to_tensor(images)
        result = {"logits": model(x)}
        if hasattr(model, "head_dist"):
            class_token, distillation_token = model.forward_features(x)
            result["class_logits"] = model.head(class_token)
            result["distillation_logits"] = model.head_dist(distillation_token)
    return {key: value.numpy() for key, value in result.items()}


def write(folder: Path, models: Models) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, (kind, arguments)) in enumerate(models.items()):
        paddle.seed(seed)
        model = build(kind, arguments)
        perturb(model, seed)
        facts = settings(model)
        shape = (2, facts["in_chans"], facts["img_size"], facts["img_size"])
        images = np.random.default_rng(100 + seed).standard_normal(shape, dtype=np.float32)
        paddle.save(model.state_dict(), str(folder / f"{name}.pdparams"))
        np.savez(folder / f"{name}.npz", images=images, **outputs(model, images))
        record = {"build": kind, "arguments": arguments, "settings": facts}
        (folder / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
        print(f"{name}: written")


def check_back(folder: Path, name: str) -> str | None:
    """Loads what our exporter wrote into a fresh model; returns what is wrong, if anything."""
    path = folder / f"{name}-back.pdparams"
    if not path.exists():
        return f"{path} is absent"
    record = json.loads((folder / f"{name}.json").read_text())
    model = build(record["build"], record["arguments"])
    try:
        # A tensor of another shape is in both lists; another dtype is an AssertionError.
        back = paddle.load(str(path))
        missing, unexpected = model.set_state_dict(back)
    except AssertionError as error:
        return str(error)
    if missing or unexpected:
        return f"missing keys {missing}, unexpected keys {unexpected}"
    # Softmax hides the bias of the keys from every output, so the tensors are compared too.
    original = paddle.load(str(folder / f"{name}.pdparams"))
    if changed := [key for key in original if not bool((original[key] == back[key]).all())]:
        return f"changed tensors {changed}"
    with np.load(folder / f"{name}.npz") as reference:
        for key, value in outputs(model, reference["images"]).items():
            error = np.abs(value - reference[key]).max() / np.abs(reference[key]).max()
            if not error <= TOLERANCE:
                return f"{key} differs by {error:.1e} of the largest, over {TOLERANCE:.0e}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description="References of the paddle weight format.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--full", action="store_true", help="also ViT_base_patch16_224 (350 MB)")
    parser.add_argument("--load", action="store_true", help="check <name>-back.pdparams instead")
    options = parser.parse_args()
    if not options.load:
        write(options.folder, {**MODELS, **FULL} if options.full else MODELS)
        return 0
    names = sorted(path.stem for path in options.folder.glob("*.json"))
    if not names:
        print(f"no references in {options.folder}: run without --load first")
        return 1
    problems = {name: check_back(options.folder, name) for name in names}
    for name, problem in problems.items():
        print(f"{name}: {problem or 'loads strictly, same tensors and outputs'}")
    return 1 if any(problems.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
