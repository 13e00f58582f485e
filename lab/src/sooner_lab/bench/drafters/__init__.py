"""`sooner bench drafters`: trained drafters of the video miniature against chains of themselves."""
