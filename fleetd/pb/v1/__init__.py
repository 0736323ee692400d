"""Version 1 of the protocol: `AgentLink` and `Desk`."""
