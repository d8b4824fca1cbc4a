"""What do you type for studies that survive crashes? `capplan study`, its commands by what they do with one."""
