"""Draft heads on a target's states (EAGLE, EAGLE-3, native MTP), and dynamic trees (EAGLE-2)."""
