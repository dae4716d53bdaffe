"""`doctor`: checks everything that archiving needs, before it is needed, and says what to do about each problem.

Checks are small, bounded in time, and stand in areas that know nothing of each other; within an area one may need another.
Nothing is changed but a folder of probe objects in the store and an empty file in our own directories, both removed again.
"""
