import json

with open("notes.jsonl", "w") as file:
    for n, day in enumerate(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"]):
        checks = [{"call": "read", "arguments": {"title": day}, "result": f"^{n} pm$"}, {"called": "save"}]
        row = {"prompt": f"Note {n} pm under {day.lower()}.", "answer": checks, "group": n % 3}
        file.write(json.dumps(row) + "\n")
