"""The diagnosis of red cells: the culprit, the first wrong node, missing operators and advice."""
