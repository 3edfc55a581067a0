"""The version of Drydock."""

VERSION = "0.1.0"
