"""Vectors of images and what they tell: neighbours, duplicates, doubtful labels, k-NN accuracy.

images.py        what is embedded: files, folders, labelled data
compute.py       vectors of all of them, which can be interrupted and continued
vector_files.py  .npz and .parquet, and the parts that are kept meanwhile
embeddings.py    `Embeddings`: vectors with paths and labels, and what can be asked of them
neighbours.py    the arithmetic: arrays in, arrays out
plane.py         PCA and t-SNE
"""
