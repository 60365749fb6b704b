"""Commands on what people are told: alerts, their rules, webhooks."""
