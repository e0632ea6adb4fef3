"""The command `doctor`: whether this machine can export, with each problem and its fix."""
