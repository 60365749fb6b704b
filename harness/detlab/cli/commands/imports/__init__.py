"""Commands that copy runs of other tracking systems; configs of others are `det config import`'s."""
