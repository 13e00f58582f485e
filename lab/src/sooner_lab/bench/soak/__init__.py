"""`sooner bench soak`: a server under mixed load and faults for half an hour, and what it keeps."""
