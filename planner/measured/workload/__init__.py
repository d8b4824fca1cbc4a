"""What did a measured run train? The network, its sequences, its experts and adapters, and the number format."""
