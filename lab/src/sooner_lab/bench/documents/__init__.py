"""`sooner bench documents`: pages of full length, real OCR drafts, a scripted target."""
