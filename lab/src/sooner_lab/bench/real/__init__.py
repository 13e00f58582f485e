"""`sooner bench real`: a model that nobody here trained, on texts that nobody here wrote."""
