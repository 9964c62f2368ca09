"""Words: from texts to the token ids that a text tower takes, and from classes to their vectors.

cleaning.py         what is done to a text first, as named steps
tokenizer.py        `Tokenizer`, and `TextPreprocess`: everything about it that could be forgotten
tokenizer_file.py   what a tokenizer.json may have, and the library that reads it
clip_vocabulary.py  CLIP's layout of byte pairs, from each of the files that it is published in
sentencepiece.py    spiece.model and tokenizer.model, read without running their code
published.py        the tokenizer of a checkpoint, from the files beside it
from_captions.py    a tokenizer trained on captions
words.py            classes and the words that describe them
prompts.py          templates: "a photo of a {}."
class_vectors.py    one vector per class, the mean of its prompts
"""
