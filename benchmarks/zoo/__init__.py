"""The zoo: real architectures, and an independent judgement of each verdict on them."""
