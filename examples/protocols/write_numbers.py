import json

with open("numbers.jsonl", "w") as file:
    for hidden in (13, 17, 21, 23, 26, 30):
        for least in (1, 5, 9):
            row = {"prompt": f"Find the number from {least} to 30.", "answer": hidden, "group": hidden}
            file.write(json.dumps(row) + "\n")
