"""The robot miniature: an OpenVLA policy trained on scripted demonstrations of four tasks."""
