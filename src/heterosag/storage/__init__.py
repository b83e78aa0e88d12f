"""What is kept on disk, behind the protocol's ports: identities, what was released, what a run did."""
