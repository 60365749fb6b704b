"""Routes of what people are told: alerts, their rules, webhooks. Nothing is evaluated or sent here."""
