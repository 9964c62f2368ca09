"""Chapter 6: what a ViT costs, on paper.  第 6 章：在纸上算出 ViT 的代价。

Complete the functions with whole numbers, without making a model; then run:
补全下面的函数，只用整数，不创建模型；然后运行：

    vitreous course check 6

d is the width of a token, m that inside the MLP, n the number of tokens.
d 是标记的宽度，m 是 MLP 内部的宽度，n 是标记数。
"""


def block_parameters(d: int, m: int) -> int:
    """Of one block: attention, MLP, two LayerNorms; every layer has a bias.

    一个编码块的参数量：注意力、MLP、两个层归一化；每一层都有偏置。
    """
    ...


def vit_parameters(image: int, patch: int, d: int, depth: int, m: int, classes: int) -> int:
    """Of a whole ViT for square images of three channels, with a class token and a linear head.

    整个 ViT 的参数量：三通道的正方形图像，有类别标记和线性分类头。
    """
    ...


def block_macs(n: int, d: int, m: int) -> int:
    """Multiplications of one block for one image; matrix products alone.

    一个编码块处理一张图像的乘法次数；只算矩阵乘法。
    """
    ...


def vit_flops(image: int, patch: int, d: int, depth: int, m: int, classes: int) -> int:
    """FLOPs of a whole ViT for one image: a multiplication with its addition counts as two.

    整个 ViT 处理一张图像的 FLOPs：一次乘法连同后面的加法算两次。
    """
    ...


def equal_tokens(d: int, m: int) -> int:
    """With how many tokens does a block multiply as often between tokens as in its linear layers?

    标记数达到多少时，编码块在标记之间的乘法和在线性层里的一样多？
    """
    ...
