"""The command `environments`: recipes for environments of runtimes."""

from exporter.tools.environments.recipes import RECIPES, Recipe, make_recipe
from exporter.tools.environments.settings_file import add_recipe

__all__ = ["RECIPES", "Recipe", "add_recipe", "make_recipe"]
