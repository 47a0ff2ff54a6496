"""A release from a clean clone: ``make release``. It ends where a person would type the upload."""
