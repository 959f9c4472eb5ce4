"""The paper's experiment done right, and the measures it is compared with."""
