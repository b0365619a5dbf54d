"""What is used of Flower beyond its public modules (flwr.app, flwr.clientapp, flwr.serverapp), all of it in this folder.

Flower may change these names in any release: `flwr>=1.41,<2` is what they were tried with. There is a file for each part that
needs some, for a site needs nothing of the SuperLink.
"""
