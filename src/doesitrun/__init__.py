"""doesitrun: does this Hugging Face model run on that accelerator, with that software stack?"""

__version__ = "0.1.0"
