"""Operations on schedules, which run notebooks later. A run itself is a task: `operations.tasks`."""
