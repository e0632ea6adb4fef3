"""The key `generate`: decoders and encoders of transformers."""
