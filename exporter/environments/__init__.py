"""Virtual environments with other packages: other runtimes, and other toolchains.

Input: an `EnvironmentDefinition`. Output: an `InstalledEnvironment`, or an `InstallationFailure`
with the message of pip. An environment is created once for each definition.
"""
