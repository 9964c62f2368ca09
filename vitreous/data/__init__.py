"""Images, what is known about them, and how they reach a model. Only here is torchvision used."""
