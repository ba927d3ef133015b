"""The live page: who has which GPU until when, why a workload waits, what a team used."""
