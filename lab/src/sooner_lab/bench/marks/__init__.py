"""What the world of marks is to show: which visual tokens a draft needs. See `settings`."""
