"""Which constants fit a user's own cluster or accelerator? Fits, measurements on a device, and the calibration file."""
