"""HorizontalPodAutoscalers: as many replicas as the use of CPU or memory asks for."""
