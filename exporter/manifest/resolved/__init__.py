"""The frozen types of a resolved project, which all later packages read."""
