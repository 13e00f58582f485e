"""The motion miniature's world: clips of moving shapes, which its AR model continues."""
