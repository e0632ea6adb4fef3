"""The command `rehearse`: an export with newer packages, compared with the results of today."""
