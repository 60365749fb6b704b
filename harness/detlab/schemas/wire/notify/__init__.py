"""Wire models of what people are told: alerts, their rules, webhooks. Nothing here evaluates or sends."""
