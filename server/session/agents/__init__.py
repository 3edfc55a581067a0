"""What makes an agent of the server: models, skills, plugins, notes, sign-ins, and the session built of them."""
