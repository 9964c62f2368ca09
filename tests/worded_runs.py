"""Two-tower models of transformers with random weights and their tokenizers, and run folders of
them."""

import shutil

import torch
from compare import perturb
from shared import made_once
from tokenizer_folders import clip_folder, siglip_folder

import vitreous

TOWER = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    "intermediate_size": 64,
}
IMAGES = TOWER | {"image_size": 32, "patch_size": 8}
COLOURS = ("red", "green", "blue")
"""Of the photographs of `photographs`."""


@made_once("hf-clip-both")
def clip_weights(folder):
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    texts = TOWER | {"vocab_size": 49408, "bos_token_id": 49406, "eos_token_id": 49407}
    config = CLIPConfig(vision_config=IMAGES, text_config=texts, projection_dim=24)
    processor = CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32)
    _save(folder, CLIPModel(config), processor, clip_folder())


@made_once("hf-siglip-both")
def siglip_weights(folder):
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    texts = TOWER | {"vocab_size": 900, "max_position_embeddings": 64, "projection_size": 32}
    config = SiglipConfig(vision_config=IMAGES, text_config=texts)
    processor = SiglipImageProcessor(size={"height": 32, "width": 32})
    _save(folder, SiglipModel(config), processor, siglip_folder())


def _save(folder, model, processor, tokenizer):
    torch.manual_seed(0)
    shutil.copytree(tokenizer, folder)
    with torch.no_grad():
        perturb(model).eval().save_pretrained(folder)
    processor.save_pretrained(folder)


@made_once("run-clip-both")
def clip_run(folder):
    vitreous.import_run(clip_weights(), folder)


@made_once("run-siglip-both")
def siglip_run(folder):
    vitreous.import_run(siglip_weights(), folder)


def photographs(folder, count=2):
    """A folder of images for each colour."""
    from PIL import Image

    for colour in COLOURS:
        for number in range(count):
            path = folder / colour / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.effect_noise((40, 40), 40 + 9 * number).convert("RGB").save(path)
    return folder
