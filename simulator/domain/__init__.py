"""What is asked for, and on what? The nouns of the domain: job, model, plan, hardware, site, fleet."""
