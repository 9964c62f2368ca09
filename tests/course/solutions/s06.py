"""Exercise 6, solved; and what readers usually get wrong."""


def block_parameters(d, m):
    attention = 4 * (d * d + d)
    mlp = d * m + m + m * d + d
    return attention + mlp + 2 * (2 * d)


def vit_parameters(image, patch, d, depth, m, classes):
    n = (image // patch) ** 2 + 1
    embedding = patch * patch * 3 * d + d + d + n * d
    return embedding + depth * block_parameters(d, m) + 2 * d + d * classes + classes


def block_macs(n, d, m):
    return n * (4 * d * d + 2 * d * m) + 2 * n * n * d


def vit_flops(image, patch, d, depth, m, classes):
    patches = (image // patch) ** 2
    blocks = depth * block_macs(patches + 1, d, m)
    return 2 * (patches * patch * patch * 3 * d + blocks + d * classes)


def equal_tokens(d, m):
    return 2 * d + m


def without_class_token(image, patch, d, depth, m, classes):
    patches = (image // patch) ** 2
    return 2 * (patches * patch * patch * 3 * d + depth * block_macs(patches, d, m) + d * classes)


WRONG = {
    "block_parameters": {
        "biases are missing": lambda d, m: 4 * d * d + 2 * d * m + 4 * d,
        "two LayerNorms are missing": lambda d, m: block_parameters(d, m) - 4 * d,
        "one was counted for all three": lambda d, m: block_parameters(d, m) - 2 * (d * d + d),
        "W_O is missing": lambda d, m: block_parameters(d, m) - d * d - d,
        "taken for 4d": lambda d, m: block_parameters(d, 4 * d),
    },
    "vit_parameters": {
        "N + 1 rows": lambda *sizes: vit_parameters(*sizes) - sizes[2],
        "three channels": lambda image, patch, d, *rest: (
            vit_parameters(image, patch, d, *rest) - 2 * patch * patch * d
        ),
        "head is missing": lambda *sizes: vit_parameters(*sizes) - (sizes[2] + 1) * sizes[-1],
    },
    "block_macs": {
        "between tokens are missing": lambda n, d, m: n * (4 * d * d + 2 * d * m),
        "two products": lambda n, d, m: block_macs(n, d, m) - n * n * d,
        "These are FLOPs": lambda n, d, m: 2 * block_macs(n, d, m),
        "used once for every token": lambda n, d, m: 4 * d * d + 2 * d * m,
    },
    "vit_flops": {
        "These are MACs": lambda *sizes: vit_flops(*sizes) // 2,
        "class token is missing": without_class_token,
        "patch embedding is missing": lambda image, patch, d, *rest: (
            vit_flops(image, patch, d, *rest) - 2 * (image // patch) ** 2 * patch * patch * 3 * d
        ),
    },
    "equal_tokens": {
        "the MLP is linear": lambda d, m: 2 * d,
        "taken for 4d": lambda d, m: 6 * d,
        "there are two": lambda d, m: 4 * d + 2 * m,
    },
}
