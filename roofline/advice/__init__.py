"""From a question to advice: what is deployed, what is asked, what to run and why."""
