"""The demo service: a chat whose memory is acknowledged only once it is durable, and a page that shows it."""
