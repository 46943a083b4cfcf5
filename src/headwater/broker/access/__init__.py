"""Who may connect: users and their credentials, and the exchanges by which clients prove who they are.

Nothing here does I/O or makes random numbers: tokens, salts and nonces come in as arguments.
"""
